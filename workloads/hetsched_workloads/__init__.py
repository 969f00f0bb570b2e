"""The shipped workloads, plug-ins like anybody's."""
