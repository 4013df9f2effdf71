"""A checkpoint's weights in the forms of other projects. These run where the peers are installed."""
