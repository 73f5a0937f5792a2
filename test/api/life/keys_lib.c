// keys_lib.c: takes every pthread key before the program starts.

#include "../testing.h"

#include <pthread.h>

size_t keys_taken;

__attribute__((constructor)) static void take_them_all(void) {
  pthread_key_t key;
  while (pthread_key_create(&key, NULL) == 0) keys_taken++;
}
