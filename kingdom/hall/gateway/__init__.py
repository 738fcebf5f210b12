"""The role that serves chat clients: HTTP and Socket.IO in front of the chat's topics and database."""
