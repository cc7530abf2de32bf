"""Which few running gangs restart elsewhere so that another gang gets a better place: plans that move whole gangs."""
