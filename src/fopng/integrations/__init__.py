"""Other people's training loops. Each module needs the library it is named after: `fopng[avalanche]`, `fopng[lightning]`."""
