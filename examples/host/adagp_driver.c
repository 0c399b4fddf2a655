#include "adagp_driver.h"

/* Causes of the interrupt that end a program; masks are the same in STATUS and ENABLE. */
#define ENDS                                                                      \
    (ADAGP_INTERRUPT_ENABLE_DONE_MASK | ADAGP_INTERRUPT_ENABLE_ERROR_MASK |       \
     ADAGP_INTERRUPT_ENABLE_STOPPED_MASK)

static uint32_t get(const struct adagp *device, uint32_t offset)
{
    return device->read(device->context, offset);
}

static void put(const struct adagp *device, uint32_t offset, uint32_t value)
{
    device->write(device->context, offset, value);
}

int adagp_is_present(const struct adagp *device)
{
    return get(device, ADAGP_ID_OFFSET) == ADAGP_ID_CONSTANT &&
           get(device, ADAGP_CONFIG_HASH_OFFSET) == ADAGP_CONFIG_HASH_CONSTANT;
}

void adagp_start(const struct adagp *device, const struct adagp_program *program)
{
    put(device, ADAGP_MEM_BASE_LO_OFFSET, (uint32_t)program->memory_base);
    put(device, ADAGP_MEM_BASE_HI_OFFSET, (uint32_t)(program->memory_base >> 32));
    put(device, ADAGP_MEM_SIZE_OFFSET, (uint32_t)program->memory_bytes);
    put(device, ADAGP_MEM_SIZE_HI_OFFSET, (uint32_t)(program->memory_bytes >> 32));
    put(device, ADAGP_PROGRAM_ADDRESS_OFFSET, program->program_offset);
    put(device, ADAGP_PROGRAM_SIZE_OFFSET, program->program_bytes);
    put(device, ADAGP_WATCHDOG_OFFSET, program->watchdog_cycles);
    put(device, ADAGP_INTERRUPT_ENABLE_OFFSET, ENDS);
    put(device, ADAGP_CONTROL_OFFSET, ADAGP_CONTROL_START_MASK);
}

enum adagp_result adagp_wait(const struct adagp *device, unsigned long polls)
{
    while (polls-- > 0) {
        uint32_t status = get(device, ADAGP_STATUS_OFFSET);
        if (!(status & ADAGP_STATUS_BUSY_MASK) && (status & ADAGP_STATUS_DONE_MASK)) {
            put(device, ADAGP_INTERRUPT_STATUS_OFFSET, ENDS);
            if (status & ADAGP_STATUS_STOPPED_MASK)
                return ADAGP_RESULT_STOPPED;
            return status & ADAGP_STATUS_ERROR_MASK ? ADAGP_RESULT_ERROR : ADAGP_RESULT_DONE;
        }
    }
    return ADAGP_RESULT_TIMEOUT;
}

void adagp_stop(const struct adagp *device)
{
    put(device, ADAGP_CONTROL_OFFSET, ADAGP_CONTROL_STOP_MASK);
}

struct adagp_error adagp_read_error(const struct adagp *device)
{
    struct adagp_error error;
    error.code = (enum adagp_error_code)get(device, ADAGP_ERROR_CODE_OFFSET);
    error.unit = (enum adagp_unit)get(device, ADAGP_ERROR_UNIT_OFFSET);
    error.address = get(device, ADAGP_ERROR_ADDRESS_LO_OFFSET);
    error.address |= (uint64_t)get(device, ADAGP_ERROR_ADDRESS_HI_OFFSET) << 32;
    return error;
}
