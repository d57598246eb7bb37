"""What both ends of HTTP know: the form of a call and of its bodies, and words for what is wrong with them. Pure."""
