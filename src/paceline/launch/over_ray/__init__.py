"""What the Ray engine does on a cluster: joins it, places one agent for each host, and stays until the job has ended. Ray core alone."""
