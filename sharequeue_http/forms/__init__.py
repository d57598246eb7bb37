"""Knowledge of both ends of HTTP: the form of a call and of its bodies, and words for what is wrong with them. Pure."""
