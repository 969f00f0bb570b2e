"""Which devices may work for which kinds of job, from their failures and successes. Pure."""
