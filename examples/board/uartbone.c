#define _DEFAULT_SOURCE /* cfmakeraw, B3000000 */
#include "uartbone.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "adagp_board.h"

#define HEAD_BYTES 6

struct uartbone uartbone_open(const char *path, int patience_ms)
{
    struct uartbone bone = {open(path, O_RDWR | O_NOCTTY), patience_ms, NULL};
    struct termios settings;
    if (bone.port < 0) {
        bone.error = "the port cannot be opened";
        return bone;
    }
    if (tcgetattr(bone.port, &settings)) {
        bone.error = "this is no serial port";
        return bone;
    }
    cfmakeraw(&settings);
    settings.c_cflag |= CLOCAL | CREAD;
    settings.c_cc[VMIN] = 0;
    settings.c_cc[VTIME] = 0;
    if (cfsetspeed(&settings, B3000000) || tcsetattr(bone.port, TCSANOW, &settings) ||
        tcflush(bone.port, TCIOFLUSH))
        bone.error = "the port takes no settings";
    return bone;
}

static void send_bytes(struct uartbone *bone, const uint8_t *data, size_t count)
{
    while (count && !bone->error) {
        ssize_t sent = write(bone->port, data, count);
        if (sent <= 0) {
            bone->error = "the port takes no bytes";
            return;
        }
        data += sent;
        count -= (size_t)sent;
    }
}

static void receive_bytes(struct uartbone *bone, uint8_t *data, size_t count)
{
    while (count && !bone->error) {
        struct pollfd waiting = {bone->port, POLLIN, 0};
        ssize_t received = 0;
        if (poll(&waiting, 1, bone->patience_ms) == 1)
            received = read(bone->port, data, count);
        if (received <= 0) {
            bone->error = "the board does not answer";
            return;
        }
        data += received;
        count -= (size_t)received;
    }
}

static void put_word(uint8_t *data, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        data[i] = (uint8_t)(word >> (24 - 8 * i));
}

static uint32_t get_word(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

/* The head of a command of at most ADAGP_UARTBONE_MOST_WORDS; how many words it has. */
static size_t put_head(uint8_t *data, uint8_t command, uint32_t address, size_t count)
{
    if (count > ADAGP_UARTBONE_MOST_WORDS)
        count = ADAGP_UARTBONE_MOST_WORDS;
    data[0] = command;
    data[1] = (uint8_t)(count % ADAGP_UARTBONE_MOST_WORDS);
    put_word(data + 2, address / 4);
    return count;
}

void uartbone_write(struct uartbone *bone, uint32_t address, const uint32_t *words, size_t count)
{
    uint8_t data[HEAD_BYTES + 4 * ADAGP_UARTBONE_MOST_WORDS];
    while (count && !bone->error) {
        size_t part = put_head(data, ADAGP_UARTBONE_WRITE, address, count);
        for (size_t i = 0; i < part; i++)
            put_word(data + HEAD_BYTES + 4 * i, words[i]);
        send_bytes(bone, data, HEAD_BYTES + 4 * part);
        address += (uint32_t)(4 * part);
        words += part;
        count -= part;
    }
}

void uartbone_read(struct uartbone *bone, uint32_t address, uint32_t *words, size_t count)
{
    uint8_t data[4 * ADAGP_UARTBONE_MOST_WORDS];
    while (count && !bone->error) {
        size_t part = put_head(data, ADAGP_UARTBONE_READ, address, count);
        send_bytes(bone, data, HEAD_BYTES);
        receive_bytes(bone, data, 4 * part);
        for (size_t i = 0; i < part && !bone->error; i++)
            words[i] = get_word(data + 4 * i);
        address += (uint32_t)(4 * part);
        words += part;
        count -= part;
    }
}
