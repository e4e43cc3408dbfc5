"""Models by name and by number: presets, Hugging Face configurations, exact parameter counts."""
