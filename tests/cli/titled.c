// Writes a title over its first argument, as servers do.
#include <string.h>

int main(int count, char **words) {
    (void)count;
    memset(words[0], 'x', strlen(words[0]));
    return 0;
}
