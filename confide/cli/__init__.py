"""The command line: one file per verb, loaded only when its verb is called.

A verb module has `EXAMPLE` (text for --help), `configure(parser)` and `run(args)`, which may return an exit status.
"""
