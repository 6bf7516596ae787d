"""The methods of a Store, by what they are about."""
