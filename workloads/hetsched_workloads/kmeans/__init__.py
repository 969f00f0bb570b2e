"""k-means clustering; see `declaration`."""

from hetsched_workloads.kmeans.declaration import KMeans, KMeansParams

__all__ = ["KMeans", "KMeansParams"]
