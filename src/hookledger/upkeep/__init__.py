"""What nobody asked for but somebody must do: rescue, retention."""
