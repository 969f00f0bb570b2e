"""One job over two hosts, which are two workers of a Dask cluster on this machine."""

import numpy as np
from distributed import LocalCluster

import hetsched

if __name__ == "__main__":
    planes = np.random.default_rng(0).standard_normal((64, 256, 256)).astype("complex64")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        hetsched.Client(cluster=cluster.scheduler_address) as client,
    ):
        for _ in range(3):
            job = client.submit("fft", planes)
            spectra = job.result()
            print(job.explain(), "\n")
    assert np.allclose(spectra, np.fft.fft2(planes), atol=1e-2)
