"""Updates as compiled artefacts: exported, built, cached, called."""
