"""The role that people's programs speak to: HTTP and Socket.IO in front of the chat's topics and database."""
