"""The Gradio image chat and its example pictures."""
