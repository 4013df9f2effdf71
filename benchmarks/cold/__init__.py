"""Scripts for fresh processes, and what starts them. The scripts import only what a program of a user would."""
