"""What an origin has, and the directories that a namespace has for it."""
