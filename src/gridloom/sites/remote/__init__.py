"""Sites whose files are not seen from here: what of them is carried, when, and in which order."""
