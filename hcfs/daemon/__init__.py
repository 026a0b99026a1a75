"""The process that serves a mount: its options, its life, its commands, and what it says about itself."""
