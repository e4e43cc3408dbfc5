"""The shapes of the sockets: what a site driver and a journal must do."""
