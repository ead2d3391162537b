"""Sessions live through any order of events, as hypothesis makes it up."""
