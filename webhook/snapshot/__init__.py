"""The cluster at one moment, from files or the API server, as the state that the engine plans on."""
