"""The coordinator's duties besides its own host's part: it admits hosts, decides for the job, and judges the whole job."""
