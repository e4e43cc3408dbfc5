"""Sites on this machine: process groups under supervisors that outlive us only by a lease."""
