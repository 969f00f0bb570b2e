"""From a job request to a resolved job: parameters, inputs, outputs, devices, limits."""
