"""The only room that talks to the API server: client, list and watch, leader election, Events, writes."""
