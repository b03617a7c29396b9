"""The explorer: a local web app that looks into single samples of a run, or of scores or predictions alone."""

from confide.explorer.launch import export_tags, serve
from confide.explorer.layout import Layout, Missing, open_layout
