"""The only room that talks to the API server: client, list and watch, decoding, leader election, Events, writes."""
