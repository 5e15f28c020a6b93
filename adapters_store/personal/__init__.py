"""The modules that an artefact needs to run, used unchanged by the trainer and by the gateway."""
