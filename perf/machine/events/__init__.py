"""The machine from event to event: whole commands, where the model beside it goes by cycles."""
