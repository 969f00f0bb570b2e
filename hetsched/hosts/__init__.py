"""Jobs over several hosts: their membership by Dask, their sockets, and `Client(cluster=...)`."""
