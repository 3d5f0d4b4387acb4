"""The process-group backend `paceline_mpi`, over MPI. Needs the extra [mpi]."""
