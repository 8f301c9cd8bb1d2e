/* A program with more rights than whoever runs it: what does the environment name? */
#include <stdio.h>

#include "odfimage.h"

int main(void) {
    struct odfork_image_error error;
    void *at = odfork_image_map(NULL, NULL, 0, NULL, &error);
    printf("%s\n", at ? "mapped" : error.text);
    return 0;
}
