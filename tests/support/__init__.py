"""What tests share: servers, processes and waiting."""
