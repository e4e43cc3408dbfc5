"""The nouns: what a user asks, what sites have, what happens, what is wanted, and why not."""
