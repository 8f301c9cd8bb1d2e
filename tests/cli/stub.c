/* Stands in for libodfork.so: being there is all it does. */
int stub_is_loaded = 1;
