"""Sites on Kubernetes, with Kueue where it is installed: jobs that the cluster itself places."""
