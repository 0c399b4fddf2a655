/* Words of a board over its serial line, with POSIX and nothing else. */
#ifndef UARTBONE_H
#define UARTBONE_H

#include <stddef.h>
#include <stdint.h>

struct uartbone {
    int port;           /* file descriptor */
    int patience_ms;    /* without a byte that is waited for */
    const char *error;  /* of the first call that failed, or a null pointer; later calls do nothing */
};

/* Open a serial port at 3,000,000 bit/s, or the end of a pseudo-terminal. */
struct uartbone uartbone_open(const char *path, int patience_ms);

/* Words of 32 bits at byte addresses that are multiples of four. A write is not answered: a later
 * read shows that it has arrived. */
void uartbone_write(struct uartbone *bone, uint32_t address, const uint32_t *words, size_t count);
void uartbone_read(struct uartbone *bone, uint32_t address, uint32_t *words, size_t count);

#endif
