"""Commands and classes of other systems, implemented with the commands and classes of this project."""
