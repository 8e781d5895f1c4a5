"""What Foliot's services, tools and training jobs import."""
