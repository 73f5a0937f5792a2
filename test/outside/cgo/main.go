// C memory from Go: goroutines, which change threads as they please, allocate with
// malloc, hand blocks to one another and free them; C calls back into Go meanwhile.
// Prints one line, the same under any allocator.
package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint64_t goSum(void *block, size_t size);

typedef struct node { struct node *next; size_t size; unsigned char bytes[]; } node;

static node *grow(node *list, size_t size) {
  node *n = malloc(sizeof *n + size);
  if (!n) abort();
  n->next = list;
  n->size = size;
  memset(n->bytes, (int)(size & 255), size);
  return n;
}

static uint64_t drop(node *list) {
  uint64_t sum = 0;
  while (list) {
    node *next = list->next;
    sum += goSum(list->bytes, list->size);
    free(list);
    list = next;
  }
  return sum;
}

static void *stretch(void *p, size_t size) { return realloc(p, size); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

//export goSum
func goSum(block unsafe.Pointer, size C.size_t) C.uint64_t {
	var sum C.uint64_t
	for _, b := range unsafe.Slice((*byte)(block), int(size)) {
		if b != byte(size) {
			panic("a block was changed")
		}
		sum += C.uint64_t(b) + 1
	}
	return sum
}

const workers, rounds = 16, 200

func lists(id int, out chan<- *C.node) {
	for round := 0; round < rounds; round++ {
		var list *C.node
		for i := 0; i < 20; i++ {
			list = C.grow(list, C.size_t((id*rounds+round)*131%5000+i))
		}
		out <- list
		if round%50 == 0 { // this goroutine's thread ends with the next one
			done := make(chan bool)
			go func() { runtime.LockOSThread(); C.free(unsafe.Pointer(C.grow(nil, 100))); done <- true }()
			<-done
		}
	}
}

func strs(id int) (length int) {
	for round := 0; round < rounds; round++ {
		text := strings.Repeat(fmt.Sprintf("%d/%d ", id, round), round%90+1)
		c := C.CString(text)
		c = (*C.char)(C.stretch(unsafe.Pointer(c), C.size_t(len(text)*3+1)))
		if C.GoString(c) != text {
			panic("a string was changed")
		}
		length += len(text)
		C.free(unsafe.Pointer(c))
	}
	return
}

func main() {
	passed := make(chan *C.node, 64)
	var makers, takers sync.WaitGroup
	var lock sync.Mutex
	var sum, length uint64
	for id := 0; id < workers; id++ {
		makers.Add(1)
		go func(id int) {
			defer makers.Done()
			lists(id, passed)
			n := strs(id)
			lock.Lock()
			length += uint64(n)
			lock.Unlock()
		}(id)
		takers.Add(1)
		go func() {
			defer takers.Done()
			for list := range passed {
				s := uint64(C.drop(list))
				lock.Lock()
				sum += s
				lock.Unlock()
			}
		}()
	}
	makers.Wait()
	close(passed)
	takers.Wait()
	fmt.Println(sum, length)
}
