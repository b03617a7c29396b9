"""The explorer: a local web app that looks into single samples of a run, or of scores or predictions alone."""

from confide.explorer.launch import export_tags as export_tags, serve as serve
from confide.explorer.layout import Layout as Layout, Missing as Missing, open_layout as open_layout
