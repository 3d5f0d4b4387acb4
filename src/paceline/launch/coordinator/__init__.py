"""What the first host's agent does besides its own host's part: it admits hosts, decides, and judges the whole job."""
