"""The order of jobs: priorities, holds, dependencies, deadlines, retries. Pure."""
