"""The pure core: no I/O.

It imports numpy and pyarrow: both for columns in memory, pyarrow for Snappy's decompression, too.
"""
