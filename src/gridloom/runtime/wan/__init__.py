"""What travels between sites: the transport, the rounds, the outer step."""
