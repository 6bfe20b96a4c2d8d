"""What other programs use. It has no part in the command line: both call the operations.

    from cpreplicate import Checkpoint, Place, SyncOptions, plan, sync, verify, status

These functions run the operations. They raise the errors of `cpreplicate.errors`, print nothing,
and handle no signal: the caller's `Cancellation` ends them. A place is a `Place`, a URI, or a local
path as a text or a `pathlib.Path`; an amount is a number, or a text such as "10 MiB" or "24h".
"""
