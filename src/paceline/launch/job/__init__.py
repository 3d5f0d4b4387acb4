"""What a job is and what agents say to each other about it. Pure, but for the connection."""
